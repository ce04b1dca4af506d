"""What each rank runs: it notes when it began, and sleeps."""

import os
import sys
import time

if __name__ == "__main__":
    begun, folder, seconds = time.time(), sys.argv[1], float(sys.argv[2])
    # Written elsewhere first: what is there is whole.
    mark = os.path.join(folder, os.environ["RANK"])  # noqa: PTH118 pathlib would be a part of what is measured
    with open(f"{mark}.new", "w", encoding="ascii") as file:  # noqa: PTH123 as above
        file.write(repr(begun))
    os.rename(f"{mark}.new", mark)  # noqa: PTH104 as above
    time.sleep(seconds)
