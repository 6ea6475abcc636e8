// Marks code that is compiled for processors and, by nvcc, for GPUs too.
#pragma once

#if defined(__CUDACC__)
#define DSL_HOST_DEVICE __host__ __device__
#else
#define DSL_HOST_DEVICE
#endif
