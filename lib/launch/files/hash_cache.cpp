#include "launch/files/hash_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <vector>

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

// Each line contains: device inode bytes mtime_ns ctime_ns sampled hash. Other lines are skipped.
void HashCache::load() {
    if (is_loaded_) return;
    is_loaded_ = true;
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
        if (words.size() != 7 || !is_hex_text(words[6], kHexDigits)) continue;
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
    is_changed_ = true;
}

void HashCache::save() {
    if (!is_changed_) return;
    is_changed_ = false;
    std::string text;
    for (const Key& key : order_) {
        const auto& [file, sampled] = key;
        text += fmt::format("{} {} {} {} {} {} {}\n", file.device, file.inode, file.bytes,
                            file.modified_ns, file.changed_ns, sampled ? 1 : 0, hashes_.at(key));
    }
    static_cast<void>(make_folders(folder_of(path_)));  // errors are reported when the file is
                                                        // opened
    if (const int status = replace_file(path_, text, 0600); status != 0)
        log_debug("launch", "cannot write the hash cache {}: {}", path_, errno_text(-status));
}

}  // namespace dslaunch::launch
