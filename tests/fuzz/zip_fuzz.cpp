// libFuzzer entry: any bytes as a TorchScript archive. It is refused with Error, or its records lie
// inside the file one after the other.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "storage/files/crc32.h"
#include "storage/files/zip_archive.h"

using namespace dslaunch::storage;

namespace {

// A volatile that keeps the compiler from leaving the checksums out.
volatile uint32_t all_checksums;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    const std::span<const std::byte> file = std::as_bytes(std::span(data, length));
    try {
        const std::byte* free_from = file.data();
        for (const ZipRecord& record : parse_zip("fuzz", file).records) {
            DSL_CHECK(record.stored.data() >= free_from, "record '{}' overlaps", record.name);
            free_from = record.stored.data() + record.stored.size();
            DSL_CHECK(free_from <= file.data() + file.size(), "record '{}' leaves", record.name);
            all_checksums = crc32(record.stored);  // reads every byte
        }
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
    }
    return 0;
}
