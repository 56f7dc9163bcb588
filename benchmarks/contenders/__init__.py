"""What every comparison needs: environments of the peers, processes that take turns, and their loop."""
