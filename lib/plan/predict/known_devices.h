// Known GPUs by name: the size and the speed of their memory, and their peak rates of matrix
// products. Plans and forecasts use these numbers on machines without a GPU, and `mfu` is relative
// to the peaks. Pure. Source: NVIDIA's data sheets and white papers of the boards with these names.
// The rates are for dense products; products of 16-bit factors accumulate in fp32.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/kinds/dtype.h"
#include "plan/predict/admission.h"

namespace dslaunch::plan {

// UNITS: bytes per second, FLOP/s. A rate of 0 means that the rate is not known.
struct DeviceRates {
    double memory_bytes_per_s = 0;
    double fp32_flops_per_s = 0;  // without tensor cores
    double tf32_flops_per_s = 0;
    double half_flops_per_s = 0;  // bf16 and fp16 alike

    // Returns the peak rate of matrix products in COMPUTE. If TF32 is true, fp32 products round
    // their factors to TF32.
    [[nodiscard]] double flops_per_s(DType compute, bool tf32) const {
        if (is_half(compute)) return half_flops_per_s;
        return tf32 ? tf32_flops_per_s : fp32_flops_per_s;
    }
};

// Returns the rates of the GPU called NAME, as users write it ("H200", "h200") or as the driver
// reports it ("NVIDIA H200"). The same chip on another board has a different name. If NAME is not
// in the list, all rates are 0.
[[nodiscard]] DeviceRates rates_of_device(std::string_view name);

// Returns how much of a GPU's memory a process may use. If TEXT is a size ("24GiB", "24G"), the
// process may use all of it. If TEXT is a name from known_devices(), CUDA's context is subtracted
// from the GPU's memory. Throws Error{kUsage} for any other text.
[[nodiscard]] DeviceRoom device_room_of(const std::string& text);

// Returns "H200, H100, …".
[[nodiscard]] std::string known_devices();

}  // namespace dslaunch::plan
