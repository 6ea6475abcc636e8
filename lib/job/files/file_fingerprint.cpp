#include "job/files/file_fingerprint.h"

#include <cstdint>

#include "base/text_bytes.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::job {

storage::Hash128 file_fingerprint(const std::string& path) {
    constexpr size_t kWholeMax = size_t{64} << 20;
    constexpr size_t kBlockBytes = size_t{64} << 10;
    constexpr size_t kBlocks = 256;
    const storage::MappedFile file(path);
    const std::string_view bytes = text_in(file.bytes());
    std::string looked_at = std::to_string(bytes.size());
    const auto look_at = [&](std::string_view part) {
        looked_at += ' ' + storage::hash_text(storage::hash_of(part));
    };
    if (bytes.size() <= kWholeMax) {
        look_at(bytes);
    } else {
        const size_t last = bytes.size() - kBlockBytes;
        for (size_t block = 0; block < kBlocks; ++block) {
            // last · block would overflow for files beyond 2^56 bytes.
            const size_t begin =
                last / (kBlocks - 1) * block + last % (kBlocks - 1) * block / (kBlocks - 1);
            look_at(bytes.substr(begin, kBlockBytes));
        }
    }
    return storage::hash_of(looked_at);
}

}  // namespace dslaunch::job
