load_subconfig("autograder/nbgrader_config.py")
