#include "storage/swap/swap_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine/disk_room.h"
#include "base/path.h"
#include "storage/disk/block_file.h"

namespace dslaunch::storage {
namespace {

constexpr std::string_view kPrefix = "dslaunch-";
constexpr const char* kFileName = "swap";
constexpr int kTriesMax = 20;
constexpr std::chrono::seconds kTurnMax{5};

// Returns true if PATH is still the file that is open as FD: no one has removed or replaced it.
bool still_there(const std::string& path, int fd) {
    struct stat named {};
    struct stat opened {};
    return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 &&
           named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

// Returns true for names of the form "dslaunch-<job id>-r<rank>-<i>". Only such folders are
// removed: somebody may just have made an empty folder with another name.
bool is_swap_folder_name(std::string_view name) {
    if (!name.starts_with(kPrefix)) return false;
    const auto take_number = [&name] {
        const size_t digits = name.size() - (name.find_last_not_of("0123456789") + 1);
        name.remove_suffix(digits);
        return digits > 0;
    };
    if (!take_number() || !name.ends_with('-')) return false;
    name.remove_suffix(1);
    return take_number() && name.ends_with("-r");
}

// Removes FOLDER if it is empty, or if the process that made it is gone. Returns true if FOLDER had
// a swap file. If two processes try at once, the lock lets only one of them do it. A new folder
// without its file looks empty and may be removed; its maker then makes it again.
bool remove_if_dead(const std::string& folder) {
    struct stat info {};
    if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != ::geteuid()) {
        return false;
    }
    const std::string path = fmt::format("{}/{}", folder, kFileName);
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    const bool dead = file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
                      still_there(path, file.get());
    if (file.valid() && !dead) return false;
    if (dead) ::unlink(path.c_str());
    return ::rmdir(folder.c_str()) == 0 && dead;  // rmdir keeps folders with other content
}

// Gives this process a turn among the jobs that start in FOLDER, for as long as the result is open.
// Without turns, many jobs that start at once would again and again remove each other's new folders
// as leftovers. If another process keeps its turn for too long (it may be stopped), this process
// continues without a turn, because the files' locks prevent all damage.
UniqueFd take_turn(const std::string& folder) {
    UniqueFd turn(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto end = std::chrono::steady_clock::now() + kTurnMax;
    while (turn.valid() && ::flock(turn.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
           std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return turn;
}

// Makes the new folder FOLDER, and in it the new file FOLDER/swap, open and locked.
UniqueFd make_locked_file(const std::string& folder) {
    const std::string path = fmt::format("{}/{}", folder, kFileName);
    int error_number = EAGAIN;
    for (int attempt = 0; attempt < kTriesMax; ++attempt) {
        if (::mkdir(folder.c_str(), 0700) != 0) {
            error_number = errno;
            if (error_number != EEXIST) break;
            static_cast<void>(remove_if_dead(folder));
            if (attempt + 1 == kTriesMax) break;
            if (::mkdir(folder.c_str(), 0700) != 0) continue;
        }
        UniqueFd file(
            ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        error_number = file.valid() ? EAGAIN : errno;
        const bool locked = file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
        if (locked && still_there(path, file.get())) return file;
        if (file.valid() && !locked && errno != EWOULDBLOCK) {
            error_number = errno;
            ::unlink(path.c_str());
            ::rmdir(folder.c_str());
            break;
        }
        if (!file.valid() && error_number != ENOENT && error_number != EEXIST) {
            ::rmdir(folder.c_str());
            break;
        }
    }
    if (error_number == EEXIST) {
        fail(ExitCode::kDisk,
             "{}: another process uses this folder, or it contains files that are not swap files: "
             "give each job its own job id, and remove other files by hand",
             folder);
    }
    fail(ExitCode::kDisk,
         "{}: cannot make a folder for the swap file: {}; zero_optimization.offload_*.nvme_path "
         "must name an existing folder that this user may write to",
         folder, errno_text(error_number));
}

// Returns the number of free bytes; -1 if it is not known.
Bytes free_space(const std::string& folder) {
    const std::optional<DiskSpace> disk = disk_space(folder);
    const bool is_known = disk && disk->whole.value > 0;
    return is_known ? disk->free : Bytes{-1};
}

[[noreturn]] void refuse_for_room(const std::string& path, Bytes need, Bytes free) {
    fail(ExitCode::kDisk,
         "{}: the swap file needs {} ({} bytes), but only {} ({} bytes) are free there: free some "
         "space, set another nvme_path, or offload less",
         path, to_text(need), need.value, to_text(free), free.value);
}

void allocate(const BackingFile& file, Bytes need) {
    const Bytes free = free_space(folder_of(file.path));
    if (free.value >= 0 && free < need) refuse_for_room(file.path, need, free);
    int status = 0;
    do {
        status = ::fallocate(file.fd.get(), 0, 0, need.value) == 0 ? 0 : errno;
    } while (status == EINTR);
    if (status == ENOSPC || status == EDQUOT)
        refuse_for_room(file.path, need, free_space(folder_of(file.path)));
    if (status == EOPNOTSUPP || status == ENOSYS) {
        log_warn("storage",
                 "{}: this file system cannot reserve space (fallocate): {} will be allocated "
                 "during training, and the job will fail if the disk gets full",
                 file.path, to_text(need));
        status = ::ftruncate(file.fd.get(), need.value) == 0 ? 0 : errno;
    }
    if (status != 0)
        fail(ExitCode::kDisk, "{}: cannot create a file of {}: {}", file.path, to_text(need),
             errno_text(status));
}

void go_direct(BackingFile& file) {
    const int flags = ::fcntl(file.fd.get(), F_GETFL);
    file.is_direct = flags >= 0 && ::fcntl(file.fd.get(), F_SETFL, flags | O_DIRECT) == 0;
    if (!file.is_direct) {
        log_warn("storage",
                 "{}: this file system does not support O_DIRECT ({}): reads and writes go through "
                 "the page cache, which costs memory and processor time",
                 file.path, errno_text(errno));
    }
}

bool is_plain_word(std::string_view text) {
    return !text.empty() && text.find_first_not_of(
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._-") == std::string_view::npos;
}

}  // namespace

int remove_dead_swap_folders(const std::string& folder) {
    int removed = 0;
    std::error_code ignored;  // making a file there will report any fault
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        if (!is_swap_folder_name(entry.path().filename().string())) continue;
        if (!remove_if_dead(entry.path().string())) continue;
        log_info("storage", "removed {}: its job has ended", entry.path().string());
        ++removed;
    }
    return removed;
}

SwapFiles::SwapFiles(const SwapPlace& place, Bytes capacity) {
    DSL_CHECK(!place.folders.empty() && is_plain_word(place.job_id), "the job id `{}` is not valid",
              place.job_id);
    DSL_CHECK(capacity.value > 0 && capacity.value % kBlockAlignment == 0 &&
                  place.stripe.value % kBlockAlignment == 0,
              "the capacity {} and the stripe {} must be whole numbers of blocks", capacity.value,
              place.stripe.value);
    files_.layout = {static_cast<int>(place.folders.size()), place.stripe};
    files_.capacity = capacity;
    const Bytes each = stripe_file_bytes(files_.layout, capacity);
    try {
        for (size_t i = 0; i < place.folders.size(); ++i) {
            const std::string folder = fmt::format("{}/{}{}-r{}-{}", place.folders[i], kPrefix,
                                                   place.job_id, place.rank, i);
            BackingFile file;
            file.path = fmt::format("{}/{}", folder, kFileName);
            {
                const UniqueFd turn = take_turn(place.folders[i]);
                static_cast<void>(remove_dead_swap_folders(place.folders[i]));
                file.fd = make_locked_file(folder);
            }
            files_.files.push_back(std::move(file));
            allocate(files_.files.back(), each);
            go_direct(files_.files.back());
        }
    } catch (...) {
        remove_all();
        throw;
    }
}

SwapFiles::~SwapFiles() {
    remove_all();
}

void SwapFiles::remove_all() noexcept {
    for (const BackingFile& file : files_.files) {
        const std::string folder = folder_of(file.path);
        // A job that starts now may have removed the empty folder as a leftover.
        if (::unlink(file.path.c_str()) != 0 || (::rmdir(folder.c_str()) != 0 && errno != ENOENT)) {
            log_warn("storage", "cannot remove {}: {}; remove it by hand", folder,
                     errno_text(errno));
        }
    }
}

}  // namespace dslaunch::storage
