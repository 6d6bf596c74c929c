"""The `slurm` target: jobs go to a cluster's queue through sbatch, squeue, sacct, scontrol and scancel, as text."""
