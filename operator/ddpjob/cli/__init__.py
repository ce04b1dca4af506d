"""The command line `ddpjob`: a command a file, each of them thin."""
