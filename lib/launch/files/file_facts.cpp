#include "launch/files/file_facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/machine/cache_folder.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kCacheBytesMax = 1U << 20;
constexpr size_t kHexDigits = 64;
constexpr int64_t kSettled = 2 * kNanosecondsPerSecond;

bool is_hash(std::string_view text) {
    return text.size() == kHexDigits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

constexpr Bytes kSampledFrom = gib(1);
constexpr Bytes kBlock = mib(1);
constexpr int64_t kSamples = 64;

// Adds at most LENGTH bytes of the file from OFFSET on to HASH; returns nothing or an errno.
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

std::string HashCache::default_path() {
    const std::string folder = cache_folder();
    return folder.empty() ? folder : folder + "/hashes";
}

void HashCache::remember(const Key& key, std::string_view hash) {
    if (hashes_.insert_or_assign(key, std::string(hash)).second) order_.push_back(key);
    while (order_.size() > kEntriesMax) {
        hashes_.erase(order_.front());
        order_.pop_front();
    }
}

// Lines: device inode bytes mtime_ns ctime_ns sampled hash. Anything else is skipped.
void HashCache::load() {
    if (loaded_) return;
    loaded_ = true;
    if (path_.empty() || ::access(path_.c_str(), R_OK) != 0) return;
    std::string text;
    try {
        text = read_file(path_, kCacheBytesMax);
    } catch (const Error& error) {
        log_debug("launch", "hash cache {}", error.what());
        return;
    }
    for (const std::string& line : split(text, '\n')) {
        const std::vector<std::string> words = split(line, ' ');
        if (words.size() != 7 || !is_hash(words[6])) continue;
        std::vector<int64_t> numbers;
        for (size_t i = 0; i < 6; ++i) {
            if (const auto number = parse_int(words[i])) numbers.push_back(*number);
        }
        if (numbers.size() != 6) continue;
        const FileIdentity file{static_cast<uint64_t>(numbers[0]),
                                static_cast<uint64_t>(numbers[1]), numbers[2], numbers[3],
                                numbers[4]};
        remember({file, numbers[5] != 0}, words[6]);
    }
}

std::string HashCache::find(const struct stat& status, bool sampled) {
    load();
    const auto found = hashes_.find({identity_of(status), sampled});
    return found == hashes_.end() ? std::string() : found->second;
}

void HashCache::add(const struct stat& status, bool sampled, std::string_view hash) {
    load();
    const FileIdentity file = identity_of(status);
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const int64_t settled_since = in_nanoseconds(now) - std::max(file.modified_ns, file.changed_ns);
    if (path_.empty() || settled_since < kSettled) return;
    remember({file, sampled}, hash);
    changed_ = true;
}

void HashCache::save() {
    if (!changed_) return;
    changed_ = false;
    std::string text;
    for (const Key& key : order_) {
        const auto& [file, sampled] = key;
        text += fmt::format("{} {} {} {} {} {} {}\n", file.device, file.inode, file.bytes,
                            file.modified_ns, file.changed_ns, sampled ? 1 : 0, hashes_.at(key));
    }
    static_cast<void>(make_folders(folder_of(path_)));  // opening the file tells what is wrong
    const TemporaryFile temporary = open_temporary(path_, 0600);
    int status = temporary.fd.valid() ? write_full(temporary.fd.get(), text) : -errno;
    if (status == 0 && ::rename(temporary.path.c_str(), path_.c_str()) != 0) status = -errno;
    if (status == 0) return;
    if (temporary.fd.valid()) ::unlink(temporary.path.c_str());
    log_debug("launch", "hash cache {} is not written: {}", path_, errno_text(-status));
}

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    DSL_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
              "libcrypto has no SHA-256");
}

void Sha256::add(const void* data, size_t length) {
    DSL_CHECK(EVP_DigestUpdate(context_.get(), data, length) == 1, "SHA-256 failed");
}

std::string Sha256::raw() {
    std::string digest(32, '\0');
    DSL_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                 nullptr) == 1 &&
                  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
              "SHA-256 failed");
    return digest;
}

std::string Sha256::hex() {
    std::string text;
    for (const char byte : raw()) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

FileFacts look_at_file(const std::string& path, bool all_bytes, const std::function<void()>& alive,
                       HashCache* cache) {
    FileFacts facts{path, 0, {}, {}};
    // The file is opened non-blocking, so that a pipe of that name does not hold us.
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
