"""What the launchers that start shell scripts share: scripts, runners, result files, evidence in logs."""
