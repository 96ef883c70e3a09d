"""``rankzero vram`` as people type it: figures, JSON, rows, and errors that name the field."""

import csv
import json

import pytest

from rankzero.cli import main
from rankzero.vram.rows import NEEDED

ROW = {
    "id": "9",
    "source": "fms-acceleration",
    "source_ref": "foundation-model-stack/fms-acceleration scripts/benchmarks/refs/a100_80gb.csv",
    "model": "Mistral-7B",
    "params": "7241732096",
    "layers": "32",
    "hidden": "4096",
    "ffn": "14336",
    "heads": "32",
    "kv_heads": "8",
    "head_dim": "128",
    "vocab": "32000",
    "tied_emb": "0",
    "gated_mlp": "1",
    "method": "full",
    "lora_rank": "",
    "lora_targets": "",
    "base_weight_dtype": "bf16",
    "precision": "bf16-pure",
    "optimizer": "AdamW(foreach)",
    "optim_state_dtype": "bf16",
    "micro_batch": "4",
    "seq_len": "4096",
    "act_ckpt": "full",
    "attention": "flash",
    "loss_impl": "hf-eager",
    "compile": "0",
    "n_gpus": "1",
    "sharding": "none",
    "tp": "1",
    "offload": "none",
    "measured_gib": "67.46",
    "kind": "allocated",
    "confidence": "high",
    "notes": "",
}


def table(path, *rows, columns=None):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns or list(ROW), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def answer(capsys, *arguments):
    status = main(["vram", *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_run_is_estimated_and_compared_with_a_card(capsys):
    options = ["--method", "qlora", "--micro-batch", "2", "--checkpointing", "full", "--gpu", "rtx4090"]
    status, report = answer(capsys, "mistral-7b", *options)
    assert status == 0
    assert report["fits"] is True
    assert sum(report["breakdown"].values()) == report["device_bytes"] < report["gpu_bytes"]
    assert main(["vram", "mistral-7b", *options]) == 0
    words = capsys.readouterr().out
    assert "weights" in words
    assert "to spare" in words


def test_a_misfit_ends_with_status_1_and_fit_names_what_would_help(capsys):
    status, report = answer(capsys, "mistral-7b", "--gpu", "rtx4090", "--fit")
    assert status == 1
    assert report["fit"]["largest"] == {"micro_batch": 0, "seq_len": 0}
    assert report["fit"]["changes"]
    assert main(["vram", "mistral-7b", "--gpu", "rtx4090", "--fit"]) == 1
    assert "LoRA" in capsys.readouterr().out


def test_the_built_in_models_are_listed(capsys):
    status, names = answer(capsys, "--list")
    assert status == 0
    assert "llama-3-8b" in names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "MODEL: it is missing"),
        (["mistral-8b"], "near it are mistral-7b"),
        (["mistral-7b", "--method", "loar"], "did you mean 'lora'"),
        (["mistral-7b", "--micro-batch", "two"], "micro_batch: 'two' is not a whole number"),
        (["mistral-7b", "--gpu", "h101"], "did you mean h100"),
        (["mistral-7b", "--fit"], "--fit: it needs --gpu"),
        (["mistral-7b", "--gpus", "3", "--tensor-parallel", "3"], "does not divide the 32 attention heads"),
        (["--rows", "nowhere.csv"], "nowhere.csv cannot be read"),
        (["missing.json"], "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_with_status_2(capsys, arguments, message):
    status, report = answer(capsys, *arguments)
    assert status == 2
    assert message in report["error"]
    assert main(["vram", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_hub_model_is_fetched_where_there_is_a_network(capsys, monkeypatch, tmp_path):
    import functools
    import http.server
    import threading

    from rankzero.vram.catalog import BUILT_IN

    folder = tmp_path / "org" / "small" / "resolve" / "main"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(BUILT_IN["gpt2"]))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    handler.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        assert answer(capsys, "org/small")[1]["parameters"] == 124_439_808
        assert "has no config.json for org/other (status 404)" in answer(capsys, "org/other")[1]["error"]
    finally:
        server.shutdown()
        server.server_close()
    assert "cannot be reached" in answer(capsys, "org/small")[1]["error"]


def test_rows_are_predicted_with_their_statistics(capsys, tmp_path):
    status, report = answer(capsys, "--rows", table(tmp_path / "rows.csv", ROW))
    assert status == 0
    assert report["rows"][0]["predicted_gib"] == pytest.approx(67.46, rel=0.01)
    assert report["statistics"]["allocated"]["rows"] == 1
    assert main(["vram", "--rows", str(tmp_path / "rows.csv")]) == 0
    assert "1 of 1 rows predicted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"method": "full-galore"}, "method: 'full-galore' has no formula"),
        ({"kind": "theory"}, "kind: 'theory' is no measurement"),
        ({"hidden": "wide"}, "hidden: 'wide' is not a number"),
        ({"layers": "2.5"}, "layers: '2.5' is not a whole number"),
        ({"layers": ""}, "layers: '' is not a number"),
        ({"measured_gib": "nan"}, "measured_gib: 'nan' is not a finite number"),
        ({"measured_gib": "-3"}, "measured_gib: -3.0 is not above 0"),
        ({"optimizer": "Lion"}, "optimizer: 'Lion' is not known"),
        ({"sharding": "magic", "n_gpus": "2"}, "sharding: 'magic' is not known"),
        ({"loss_impl": "magic"}, "loss_impl: 'magic' is not known"),
        ({"method": "lora", "lora_targets": "q,z"}, "lora_targets: 'z' is not known"),
        ({"kv_heads": "5"}, "kv_heads: 5 does not divide heads = 32"),
    ],
)
def test_a_row_that_cannot_be_expressed_is_listed_with_the_reason(capsys, tmp_path, changed, reason):
    status, report = answer(capsys, "--rows", table(tmp_path / "rows.csv", ROW, {**ROW, **changed}))
    assert status == 0
    assert report["predicted"] == 1
    assert reason in report["rows"][1]["reason"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("id,model\n1,x\n", "lacks the columns source"),
        (",".join(NEEDED) + "\n", "has no rows"),
        (b"\xff\xfe\x00\x00", "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(capsys, tmp_path, content, message):
    path = tmp_path / "rows.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    status, report = answer(capsys, "--rows", str(path))
    assert status == 2
    assert message in report["error"]


def test_a_short_line_is_a_row_with_a_reason_and_no_crash(capsys, tmp_path):
    path = tmp_path / "rows.csv"
    table(path, ROW)
    with open(path, "a") as file:
        file.write("10,short\n")
    status, report = answer(capsys, "--rows", str(path))
    assert status == 0
    assert report["rows"][1]["reason"]


def test_an_encoder_without_formulas_is_traced(capsys, tmp_path):
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 500, **sizes}))
    status, report = answer(capsys, str(tmp_path), "--seq-len", "32", "--gpu", "t4")
    assert status == 0
    assert report["fits"] is True
    assert sum(report["breakdown"].values()) == report["device_bytes"]
    assert main(["vram", str(tmp_path), "--seq-len", "32"]) == 0
    assert "the real model, traced" in capsys.readouterr().out
    status, report = answer(capsys, str(tmp_path), "--gpu", "t4", "--fit")
    assert status == 2
    assert "needs closed formulas" in report["error"]
