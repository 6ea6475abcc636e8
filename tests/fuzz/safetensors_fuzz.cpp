// libFuzzer entry: reads any bytes as a .safetensors file. The file is refused with Error, or every
// view that it gives is inside the file.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "storage/files/safetensors.h"

using namespace dslaunch::storage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    const std::span<const std::byte> file = std::as_bytes(std::span(data, length));
    try {
        size_t covered = 0;
        for (const SafetensorsEntry& entry : parse_safetensors("fuzz", file).entries) {
            const std::byte* end = entry.bytes.data() + entry.bytes.size();
            DSL_CHECK(entry.bytes.data() >= file.data() && end <= file.data() + file.size(),
                      "tensor '{}' leaves the file", entry.name);
            covered += entry.bytes.size();
        }
        DSL_CHECK(covered <= file.size(), "tensors overlap");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
    }
    return 0;
}
