"""Every test process keeps to one core: the tests run on all of them at once already."""

import torch

torch.set_num_threads(1)
