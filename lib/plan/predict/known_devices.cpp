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
    int64_t mib;  // as nvidia-smi tells it, with ECC where it is on by default
};

constexpr std::array kDevices = {KnownDevice{"H200", 143'771},     KnownDevice{"H100", 81'559},
                                 KnownDevice{"A100-80GB", 81'920}, KnownDevice{"A100-40GB", 40'960},
                                 KnownDevice{"L40S", 46'068},      KnownDevice{"L4", 23'034},
                                 KnownDevice{"A10", 23'028},       KnownDevice{"RTX4090", 24'564},
                                 KnownDevice{"RTX3090", 24'576}};

// CUDA's context, its libraries' code and NCCL's buffers for a few channels.
constexpr Bytes kContext = mib(768);

std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
}

}  // namespace

DeviceRoom device_room_of(const std::string& text) {
    for (const KnownDevice& device : kDevices)
        if (upper(text) == device.name)
            return {
                mib(device.mib) - kContext,
                fmt::format("{} less {} for CUDA", to_text(mib(device.mib)), to_text(kContext))};
    std::string size = text;
    if (upper(size).ends_with("IB")) size.resize(size.size() - 2);
    const std::optional<int64_t> bytes = parse_byte_size(size);
    if (!bytes || *bytes < 1)
        fail(ExitCode::kUsage, "--device-memory: `{}` is neither a size, as 24GiB, nor one of {}",
             printable(text), known_devices());
    return {Bytes{*bytes}, "--device-memory"};
}

std::string known_devices() {
    std::string names;
    for (const KnownDevice& device : kDevices)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", device.name);
    return names;
}

}  // namespace dslaunch::plan
