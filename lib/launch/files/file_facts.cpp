#include "launch/files/file_facts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fd.h"

namespace dslaunch::launch {
namespace {

constexpr Bytes kSampledFrom = gib(1);
constexpr Bytes kBlock = mib(1);
constexpr int64_t kSamples = 64;

// Adds at most LENGTH bytes of the file, starting at OFFSET, to HASH; returns 0 or an errno.
int add_range(int fd, int64_t offset, int64_t length, Sha256& hash,
              const std::function<void()>& alive) {
    std::string block(static_cast<size_t>(kBlock.value), '\0');
    while (length > 0) {
        const auto want = static_cast<size_t>(std::min(length, kBlock.value));
        const ssize_t n = ::pread(fd, block.data(), want, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) return EIO;  // the file shrank while it was read
        hash.add(block.data(), static_cast<size_t>(n));
        offset += n;
        length -= n;
        alive();
    }
    return 0;
}

}  // namespace

FileFacts look_at_file(const std::string& path, bool all_bytes, const std::function<void()>& alive,
                       HashCache* cache) {
    FileFacts facts{path, 0, {}, {}};
    // The file is opened non-blocking, so that a FIFO of that name does not block this call.
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!file.valid() || ::fstat(file.get(), &status) != 0) {
        facts.error = errno_text(errno);
        return facts;
    }
    if (!S_ISREG(status.st_mode)) {
        facts.error = "is not a plain file";
        return facts;
    }
    facts.bytes = status.st_size;
    const bool sampled = !all_bytes && facts.bytes > kSampledFrom.value;
    if (cache != nullptr && !all_bytes) facts.hash = cache->find(status, sampled);
    if (!facts.hash.empty()) return facts;
    Sha256 hash;
    int failure = 0;
    if (!sampled) {
        failure = add_range(file.get(), 0, facts.bytes, hash, alive);
    } else {
        const int64_t last = facts.bytes - kBlock.value;
        for (int64_t i = 0; i < kSamples && failure == 0; ++i) {
            failure = add_range(file.get(), last / (kSamples - 1) * i, kBlock.value, hash, alive);
        }
    }
    if (failure != 0) facts.error = errno_text(failure);
    if (failure == 0) facts.hash = hash.hex();
    if (failure == 0 && cache != nullptr) cache->add(status, sampled, facts.hash);
    return facts;
}

bool is_missing(const std::string& path) {
    return ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

std::string hash_whole_file(const std::string& path, HashCache& cache,
                            const std::function<void()>& alive) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return {};
    std::string known = cache.find(status, false);
    if (!known.empty()) return known;
    const FileFacts facts = look_at_file(path, true, alive);
    if (facts.error.empty()) cache.add(status, false, facts.hash);
    return facts.hash;
}

std::string own_binary_hash() {
    HashCache cache(HashCache::default_path());
    const FileFacts facts = look_at_file(
        "/proc/self/exe", false, [] {}, &cache);
    if (!facts.error.empty()) fail(ExitCode::kSetup, "/proc/self/exe: {}", facts.error);
    cache.save();
    return facts.hash;
}

}  // namespace dslaunch::launch
