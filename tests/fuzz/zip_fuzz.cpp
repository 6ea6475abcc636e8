// libFuzzer entry: reads any bytes as a TorchScript archive. The archive is refused with Error, or
// its records are inside the file, one after the other, and the size of the expanded archive is the
// sum of the records' sizes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "storage/files/crc32.h"
#include "storage/files/zip_archive.h"

using namespace dslaunch::storage;

namespace {

// It is volatile so that the compiler does not leave the checksums out.
volatile uint32_t all_checksums;

// Returns the size of the expanded file; nothing if the directory is damaged.
std::optional<int64_t> expanded_or_none(std::span<const std::byte> file) {
    try {
        return expanded_bytes("fuzz", file).value;
    } catch (const dslaunch::Error& error) {
        DSL_CHECK(error.code() == dslaunch::ExitCode::kInput, "{}", error.what());
        return std::nullopt;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    const std::span<const std::byte> file = std::as_bytes(std::span(data, length));
    const std::optional<int64_t> expanded = expanded_or_none(file);
    DSL_CHECK(expanded.value_or(0) >= 0, "a sum that is too large does not turn negative");
    try {
        const std::byte* free_from = file.data();
        double content_bytes = 0;
        for (const ZipRecord& record : parse_zip("fuzz", file).records) {
            DSL_CHECK(record.stored.data() >= free_from, "record '{}' overlaps", record.name);
            free_from = record.stored.data() + record.stored.size();
            DSL_CHECK(free_from <= file.data() + file.size(), "record '{}' leaves", record.name);
            all_checksums = crc32(record.stored);  // reads every byte
            content_bytes += static_cast<double>(record.content_bytes);
        }
        DSL_CHECK(expanded, "what has records has a directory");
        // Sums of doubles above 2^53 may differ in the last bits.
        const double most = std::min(content_bytes, static_cast<double>(INT64_MAX));
        DSL_CHECK(std::abs(static_cast<double>(*expanded) - most) <= most * 1e-9, "their sum");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
    }
    return 0;
}
