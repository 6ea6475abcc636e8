#include "storage/files/hash128.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dslaunch::storage {

std::string hash_text(const Hash128& hash) {
    return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

Hash128 hash_of(std::string_view bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.low64, hash.high64};
}

}  // namespace dslaunch::storage
