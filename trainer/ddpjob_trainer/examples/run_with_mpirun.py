"""What `run_with_torchrun` prints, under mpirun.

mpirun -np 4 python run_with_mpirun.py
"""

from ddpjob_trainer.examples.run_with_torchrun import main

if __name__ == "__main__":
    main()
