"""What several metric tools share: steps and their device work, means over ranks, sizes of collectives."""
