// Known GPUs by name: their memory, its speed, and the peaks of products. Plans and forecasts use
// them where there is no GPU, and `mfu` is measured against them. Pure. Source: NVIDIA's data
// sheets and white papers of the boards with these names; products are dense, and products in 16
// bit add up in fp32.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/kinds/dtype.h"
#include "plan/predict/admission.h"

namespace dslaunch::plan {

// UNITS: bytes per second, FLOP/s. A rate of 0 is not known.
struct DeviceRates {
    double memory_bytes_per_s = 0;
    double fp32_flops_per_s = 0;  // without tensor cores
    double tf32_flops_per_s = 0;
    double half_flops_per_s = 0;  // bf16 and fp16 alike

    // Returns the peak of products in COMPUTE; fp32 products round their factors to TF32 if TF32.
    [[nodiscard]] double flops_per_s(DType compute, bool tf32) const {
        if (is_half(compute)) return half_flops_per_s;
        return tf32 ? tf32_flops_per_s : fp32_flops_per_s;
    }
};

// Returns the rates of a name as users write it ("H200", "h200") or as the driver has it ("NVIDIA
// H200"). The same chip on another board has another name, and is not known: all rates are 0.
[[nodiscard]] DeviceRates rates_of_device(std::string_view name);

// Returns how much a process may take of a GPU's memory. TEXT is a size ("24GiB", "24G"), which
// counts whole, or a name of known_devices(), less CUDA's context. Throws Error{kUsage}.
[[nodiscard]] DeviceRoom device_room_of(const std::string& text);

// Returns "H200, H100, …".
[[nodiscard]] std::string known_devices();

}  // namespace dslaunch::plan
