"""The command line `ddpjob`: one thin file per command."""
