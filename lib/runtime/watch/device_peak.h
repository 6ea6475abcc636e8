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

// Multiplies square matrices of COMPUTE on the CPU for some 30 milliseconds, and returns the best
// rate that this rank's threads reach. All ranks of a host should call it at the same time, since
// they share its processors in training too.
[[nodiscard]] DevicePeak measure_cpu_peak(DType compute);

}  // namespace dslaunch::runtime
