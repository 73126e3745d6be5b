"""What a program may do with this package; the command line and the server call nothing else."""
