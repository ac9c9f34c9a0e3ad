"""What every part of ddpn stands on: independent jobs, here, in processes of this machine, or on a Ray cluster."""
