// libFuzzer entry: reads any bytes as a checkpoint's manifest, with and without a valid end added
// to them, and as a rank's record of a file. The bytes are refused with Error, or are the same
// after they are written and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "storage/checkpoint/manifest.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::storage;

void parse(std::string_view text) {
    try {
        const std::string printed = manifest_text(parse_manifest("fuzz", text));
        DSL_CHECK(manifest_text(parse_manifest("fuzz", printed)) == printed, "not the same again");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kCheckpoint, "{}", error.what());
        fuzz::check_shown(error.what());
    }
}

void decode(std::string_view bytes) {
    try {
        const CheckpointFile file = decode_checkpoint_file(bytes);
        DSL_CHECK(decode_checkpoint_file(encode(file)) == file, "not the same again");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInternal, "{}", error.what());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    const std::string_view text(reinterpret_cast<const char*>(data), length);
    parse(text);
    decode(text);
    std::string whole(text.substr(0, text.rfind(kManifestEnd[0])));
    const std::string hash = hash_text(hash_of(whole));
    parse(whole.append(kManifestEnd[0]).append(hash).append(kManifestEnd[1]));
    return 0;
}
