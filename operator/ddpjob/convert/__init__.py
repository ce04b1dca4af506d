"""Launch lines and job scripts of other schedulers, made into DDPJobs. Pure functions: no shell and no cluster."""
