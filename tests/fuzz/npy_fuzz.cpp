// libFuzzer entry: reads any bytes as a .npy file. The file is refused with Error, or its data are
// the rest of the file and have the length that shape and dtype give.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "storage/files/npy_file.h"

using namespace dslaunch::storage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    const std::span<const std::byte> file = std::as_bytes(std::span(data, length));
    try {
        const NpyArray array = parse_npy("fuzz", file);
        auto need = static_cast<size_t>(dtype_bytes(array.dtype));
        for (const int64_t extent : array.shape) need *= static_cast<size_t>(extent);
        DSL_CHECK(array.bytes.size() == need, "{} bytes for {}", array.bytes.size(), need);
        DSL_CHECK(array.bytes.data() + need == file.data() + file.size(), "not the file's end");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
    }
    return 0;
}
