// The peak to which `mfu` is relative: stated in the config, known by a GPU's name, or measured on
// a CPU. Data path: config, rank device -> [here] -> trainer, metrics. One thread.
#pragma once

#include <string_view>

#include "base/kinds/dtype.h"

namespace dslaunch::runtime {

// The peak rate of matrix products of one rank's device.
struct DevicePeak {
    double tflops = 0;                    // 0: not known
    std::string_view source = "unknown";  // "stated", "name", "measured"
};

// Returns the best rate of products of square matrices of COMPUTE that this rank's threads reach on
// the CPU now, in some 30 milliseconds. All ranks of a host should call it at the same time, since
// they share its processors in training too.
[[nodiscard]] DevicePeak measure_cpu_peak(DType compute);

}  // namespace dslaunch::runtime
