#include "plan/predict/known_devices.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "base/text/byte_size.h"

namespace dslaunch::plan {

namespace {

struct KnownDevice {
    std::string_view name;
    std::string_view full_name;  // the name that the driver reports
    int64_t mib;                 // the size that nvidia-smi reports, with ECC if on by default
    double gb_per_s;
    double fp32, tf32, half;  // TFLOP/s
};

constexpr std::array kDevices = {
    KnownDevice{"H200", "NVIDIA H200", 143'771, 4'800, 67, 494.5, 989.5},
    KnownDevice{"H100", "NVIDIA H100 80GB HBM3", 81'559, 3'350, 67, 494.5, 989.5},
    KnownDevice{"A100-80GB", "NVIDIA A100-SXM4-80GB", 81'920, 2'039, 19.5, 156, 312},
    KnownDevice{"A100-40GB", "NVIDIA A100-SXM4-40GB", 40'960, 1'555, 19.5, 156, 312},
    KnownDevice{"L40S", "NVIDIA L40S", 46'068, 864, 91.6, 183, 362},
    KnownDevice{"L4", "NVIDIA L4", 23'034, 300, 30.3, 60, 121},
    KnownDevice{"A10", "NVIDIA A10", 23'028, 600, 31.2, 62.5, 125},
    KnownDevice{"RTX4090", "NVIDIA GeForce RTX 4090", 24'564, 1'008, 82.6, 82.6, 165.2},
    KnownDevice{"RTX3090", "NVIDIA GeForce RTX 3090", 24'576, 936, 35.6, 35.6, 71}};

// The memory of a CUDA context and of the code of CUDA's libraries.
constexpr Bytes kContext = mib(768);

std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
}

}  // namespace

DeviceRates rates_of_device(std::string_view name) {
    for (const KnownDevice& device : kDevices)
        if (upper(std::string(name)) == device.name || name == device.full_name)
            return {device.gb_per_s * 1e9, device.fp32 * 1e12, device.tf32 * 1e12,
                    device.half * 1e12};
    return {};
}

DeviceRoom device_room_of(const std::string& text) {
    for (const KnownDevice& device : kDevices)
        if (upper(text) == device.name)
            return {mib(device.mib) - kContext,
                    fmt::format("{}, of which CUDA needs {}", to_text(mib(device.mib)),
                                to_text(kContext))};
    std::string size = text;
    if (upper(size).ends_with("IB")) size.resize(size.size() - 2);
    const std::optional<int64_t> bytes = parse_byte_size(size);
    if (!bytes || *bytes < 1)
        fail(ExitCode::kUsage,
             "--device-memory: `{}` is neither a size such as 24GiB nor one of {}", printable(text),
             known_devices());
    if (*bytes < mib(1).value)
        fail(ExitCode::kUsage, "--device-memory: `{}` is {}{}", printable(text),
             counted(*bytes, "byte"),
             parse_int(text) ? fmt::format(": write {}GiB", printable(text))
                             : ", which is less than any GPU has");
    return {Bytes{*bytes}, "--device-memory"};
}

std::string known_devices() {
    std::string names;
    for (const KnownDevice& device : kDevices)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", device.name);
    return names;
}

}  // namespace dslaunch::plan
