#include "launch/agent/push_receiver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/machine/disk_room.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/text.h"
#include "launch/files/file_facts.h"

namespace dslaunch::launch {
namespace {

constexpr int64_t kSyncBytes = 64 << 20;  // between two syncs, so that the last fsync is short
constexpr mode_t kFolderMode = 0755;
constexpr size_t kNameBytesMax = 200;

timespec to_timespec(int64_t nanoseconds) {
    int64_t seconds = nanoseconds / kNanosecondsPerSecond;
    int64_t rest = nanoseconds % kNanosecondsPerSecond;
    if (rest < 0) --seconds, rest += kNanosecondsPerSecond;  // before 1970
    return {static_cast<time_t>(seconds), static_cast<long>(rest)};
}

bool is_plain_path(const std::string& path) {
    if (path.empty() || path.front() != '/' || path.find('\0') != std::string::npos) return false;
    const std::vector<std::string> parts = split(path.substr(1), '/');
    return std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
        return part.empty() || part == "." || part == "..";
    });
}

std::string free_space_text(int fd) {
    const std::optional<DiskSpace> disk = disk_space(fd);
    return disk ? to_text(disk->free) : "unknown";
}

}  // namespace

int64_t PushReceiver::chunk_bytes(int64_t chunk) const {
    return std::min(kPushChunkBytes, offer_.bytes - chunk * kPushChunkBytes);
}

void PushReceiver::reply(PushState state, int64_t offset) {
    PushAnswer answer;
    answer.id = offer_.id;
    answer.state = state;
    answer.offset = offset;
    if (state == PushState::kWantsPieces) answer.missing = missing_;
    answer_(answer);
}

void PushReceiver::give_up(const std::string& cause) {
    struct stat status {};
    const bool is_empty =
        part_.valid() && ::fstat(part_.get(), &status) == 0 && status.st_size == 0;
    // An empty file is of no use to a later push.
    if (is_empty) ::unlinkat(folder_.get(), part_name_.c_str(), 0);
    part_.reset();
    folder_.reset();
    wants_chunks_ = false;
    missing_.clear();
    PushAnswer answer;
    answer.id = offer_.id;
    answer.state = PushState::kFailed;
    answer.error = cause;
    answer_(answer);
}

// Returns true if PATH is a plain file with the offered content. If IS_TARGET, also gives the file
// the mode and time of the offer, and throws Error{kDisk} if PATH exists but is not a plain file.
bool PushReceiver::is_there(const std::string& path, bool is_target) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) {
        if (errno == ENOENT || errno == ENOTDIR || !is_target) return false;
        fail(ExitCode::kDisk, "{}", errno_text(errno));
    }
    if (is_target && S_ISLNK(status.st_mode)) {
        fail(ExitCode::kDisk,
             "the path is a symbolic link, which is not followed; remove it, or give the path that "
             "it points to");
    }
    if (is_target && S_ISDIR(status.st_mode)) fail(ExitCode::kDisk, "the path is a folder");
    if (is_target && !S_ISREG(status.st_mode))
        fail(ExitCode::kDisk, "the path exists but is not a plain file");
    // A library's path on the launcher's machine may be a symbolic link on this host.
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
    if (status.st_size != offer_.bytes) return false;
    HashCache cache(HashCache::default_path());
    if (hash_whole_file(path, cache, alive_) != offer_.hash) return false;
    cache.save();
    if (!is_target) return true;
    if ((status.st_mode & 0777) != static_cast<mode_t>(offer_.mode) &&
        ::chmod(path.c_str(), static_cast<mode_t>(offer_.mode)) != 0) {
        fail(ExitCode::kDisk, "the file's content is up to date, but its mode cannot be set: {}",
             errno_text(errno));
    }
    return true;
}

void PushReceiver::offer(const PushOffer& offer) {
    offer_ = offer;
    offer_.mode &= 0777;
    wants_chunks_ = false;
    part_.reset();
    if (!is_plain_path(offer_.path) || offer_.bytes < 0) {
        return give_up("the path must be absolute, without `.` and `..`");
    }
    if (offer_.bytes > kPushFileBytesMax || !is_hex_text(offer_.hash, 2 * kPushHashBytes)) {
        return give_up(fmt::format("a file of {} with the hash `{}` cannot be sent",
                                   to_text(Bytes{offer_.bytes}), printable(offer_.hash)));
    }
    try {
        if (is_there(offer_.path, true)) return reply(PushState::kEqual);
        struct stat status {};
        if (!offer_.source_path.empty() && ::lstat(offer_.path.c_str(), &status) != 0 &&
            is_there(offer_.source_path, false)) {
            return reply(PushState::kEqual);
        }
        wants_chunks_ = true;
        reply(PushState::kWantsChunks);
    } catch (const Error& error) {
        give_up(error.what());
    }
}

void PushReceiver::make_folders() {
    name_ = offer_.path.substr(offer_.path.rfind('/') + 1);
    const std::string folder = folder_of(offer_.path);
    int cause = 0;  // errno of a folder that is missing and could not be made
    for (size_t end = folder.find('/', 1); folder.size() > 1; end = folder.find('/', end + 1)) {
        const std::string path = folder.substr(0, end);
        if (::mkdir(path.c_str(), kFolderMode) == 0) {
            static_cast<void>(::chmod(path.c_str(), kFolderMode));  // mkdir() applies the umask
            static_cast<void>(flush_folder(folder_of(path)));
        } else if (errno != EEXIST) {
            cause = errno;
        }
        if (end == std::string::npos) break;
    }
    folder_ = UniqueFd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder_.valid()) {
        fail(ExitCode::kDisk, "cannot make or open the folder {}: {}", folder,
             errno_text(errno == ENOENT && cause != 0 ? cause : errno));
    }
}

// Opens the temporary file and locks it. Leaves part_ invalid if another process holds the lock.
void PushReceiver::open_part() {
    // Names have at most 255 bytes; in a long name, a hash replaces the end.
    const std::string kept = name_.size() <= kNameBytesMax
                                 ? name_
                                 : name_.substr(0, kNameBytesMax - 64) + offer_.hash.substr(0, 64);
    part_name_ = "." + kept + ".dslaunch-part";
    part_ = UniqueFd(::openat(folder_.get(), part_name_.c_str(),
                              O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
    struct stat opened {
    }, named{};
    if (!part_.valid() || ::fstat(part_.get(), &opened) != 0) {
        fail(ExitCode::kDisk, "cannot create the temporary file {} next to it: {}", part_name_,
             errno_text(errno));
    }
    // Refuses another user's file and hard links, since writing would change the linked file.
    if (!S_ISREG(opened.st_mode) || opened.st_uid != ::geteuid() || opened.st_nlink > 1) {
        fail(ExitCode::kDisk,
             "the temporary file {} next to it is not a plain file of this user; remove it",
             part_name_);
    }
    // The previous holder of the lock may have renamed the file meanwhile; then it is no longer the
    // temporary file.
    if (::flock(part_.get(), LOCK_EX | LOCK_NB) != 0 ||
        ::fstatat(folder_.get(), part_name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
        named.st_ino != opened.st_ino || named.st_dev != opened.st_dev) {
        part_.reset();
    }
}

void PushReceiver::reserve_space() {
    struct stat status {};
    ::fstat(part_.get(), &status);
    if (status.st_size > offer_.bytes && ::ftruncate(part_.get(), offer_.bytes) != 0) {
        fail(ExitCode::kDisk, "{}", errno_text(errno));
    }
    if (offer_.bytes == 0) return;
    // The temporary file's size grows only with the bytes that arrive, so that a later push can
    // continue it.
    if (::fallocate(part_.get(), FALLOC_FL_KEEP_SIZE, 0, offer_.bytes) == 0) return;
    const int error_number = errno;
    if (error_number == EOPNOTSUPP) return;
    static_cast<void>(::ftruncate(part_.get(), status.st_size));  // frees the reserved part
    fail(ExitCode::kDisk, "{}: {} are needed, {} are free", errno_text(error_number),
         to_text(Bytes{offer_.bytes}), free_space_text(folder_.get()));
}

// Returns the hash of a chunk of a file and stores the chunk's content in BYTES. Returns an empty
// string if the file does not contain the whole chunk.
std::string PushReceiver::hash_chunk(int fd, int64_t chunk, std::string& bytes) const {
    bytes.resize(static_cast<size_t>(chunk_bytes(chunk)));
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n = ::pread(fd, bytes.data() + done, bytes.size() - done,
                                  chunk * kPushChunkBytes + static_cast<int64_t>(done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return {};
        done += static_cast<size_t>(n);
    }
    Sha256 hash;
    hash.add(bytes);
    return hash.raw();
}

// Keeps chunks that an earlier push left in the temporary file, or that the old file contains: they
// need not be sent.
void PushReceiver::keep_what_is_there(const std::string& hashes) {
    const UniqueFd old(::openat(folder_.get(), name_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    std::string bytes;
    missing_.clear();
    for (int64_t chunk = 0; chunk < push_chunk_count(offer_.bytes); ++chunk) {
        const std::string_view wanted = std::string_view(hashes).substr(
            static_cast<size_t>(chunk) * kPushHashBytes, kPushHashBytes);
        alive_();
        if (hash_chunk(part_.get(), chunk, bytes) == wanted) continue;
        const bool copied = old.valid() && hash_chunk(old.get(), chunk, bytes) == wanted &&
                            ::pwrite(part_.get(), bytes.data(), bytes.size(),
                                     chunk * kPushChunkBytes) == static_cast<ssize_t>(bytes.size());
        if (!copied) missing_.push_back(static_cast<uint32_t>(chunk));
    }
}

void PushReceiver::take_chunks(const PushChunks& chunks) {
    if (!wants_chunks_ || chunks.id != offer_.id ||
        static_cast<int64_t>(chunks.hashes.size()) !=
            push_chunk_count(offer_.bytes) * static_cast<int64_t>(kPushHashBytes)) {
        fail(ExitCode::kInternal, "received a list of chunks that was not requested");
    }
    wants_chunks_ = false;
    try {
        make_folders();
        open_part();
        if (!part_.valid()) return reply(PushState::kBusy);
        // The previous holder of the lock may have written exactly this file.
        if (is_there(offer_.path, true)) {
            ::unlinkat(folder_.get(), part_name_.c_str(), 0);
            part_.reset();
            return reply(PushState::kEqual);
        }
        reserve_space();
        keep_what_is_there(chunks.hashes);
    } catch (const Error& error) {
        return give_up(error.what());
    }
    hashes_ = chunks.hashes;
    next_missing_ = 0;
    unsynced_bytes_ = 0;
    reply(PushState::kWantsPieces);
    begin_chunk();
}

void PushReceiver::begin_chunk() {
    static_cast<void>(chunk_hash_.raw());
    if (next_missing_ == missing_.size()) return finish();
    next_offset_ = int64_t{missing_[next_missing_]} * kPushChunkBytes;
}

void PushReceiver::take_piece(const PushPiece& piece) {
    // After give_up(), pieces of the file may still arrive. They are ignored.
    if (!part_.valid() || piece.id != offer_.id) return;
    const int64_t chunk = missing_[next_missing_];
    const int64_t end = chunk * kPushChunkBytes + chunk_bytes(chunk);
    const auto length = static_cast<int64_t>(piece.bytes.size());
    if (piece.offset != next_offset_ || length == 0 || piece.offset + length > end) {
        fail(ExitCode::kInternal, "received a piece of a file out of order");
    }
    for (int64_t done = 0; done < length;) {
        const ssize_t n = ::pwrite(part_.get(), piece.bytes.data() + done,
                                   static_cast<size_t>(length - done), piece.offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            const int error_number = n < 0 ? errno : EIO;
            return give_up(fmt::format("{} after writing {} of {}; {} are free",
                                       errno_text(error_number), to_text(Bytes{piece.offset}),
                                       to_text(Bytes{offer_.bytes}),
                                       free_space_text(folder_.get())));
        }
        done += n;
    }
    chunk_hash_.add(piece.bytes);
    next_offset_ += length;
    unsynced_bytes_ += length;
    if (unsynced_bytes_ >= kSyncBytes) {
        unsynced_bytes_ = 0;
        if (::fdatasync(part_.get()) != 0) return give_up(errno_text(errno));
    }
    reply(PushState::kTook, piece.offset);
    if (next_offset_ < end) return;
    if (chunk_hash_.raw() !=
        hashes_.substr(static_cast<size_t>(chunk) * kPushHashBytes, kPushHashBytes)) {
        return give_up(
            fmt::format("the data received at offset {} does not match its hash; did the file "
                        "change while it was sent?",
                        to_text(Bytes{chunk * kPushChunkBytes})));
    }
    ++next_missing_;
    begin_chunk();
}

void PushReceiver::finish() {
    const timespec times[2] = {to_timespec(offer_.modified_ns), to_timespec(offer_.modified_ns)};
    if (::ftruncate(part_.get(), offer_.bytes) != 0 ||
        ::fchmod(part_.get(), static_cast<mode_t>(offer_.mode)) != 0 ||
        ::futimens(part_.get(), times) != 0 || ::fsync(part_.get()) != 0 ||
        ::renameat(folder_.get(), part_name_.c_str(), folder_.get(), name_.c_str()) != 0 ||
        ::fsync(folder_.get()) != 0) {
        return give_up(errno_text(errno));
    }
    part_.reset();
    folder_.reset();
    reply(PushState::kDone);
}

}  // namespace dslaunch::launch
