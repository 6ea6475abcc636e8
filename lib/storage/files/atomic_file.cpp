#include "storage/files/atomic_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/machine/disk_room.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/text/file_faults.h"
#include "base/text_bytes.h"

namespace dslaunch::storage {
namespace {

// Returns "; 3.0 MiB are free there" for a full disk. Counts the blocks of the unfinished file FD
// as free. Returns an empty text for other causes, and if the space is not known.
std::string free_space(const std::string& path, int fd, int error_number) {
    if (error_number != ENOSPC) return "";
    const std::optional<DiskSpace> disk = disk_space(folder_of(path));
    if (!disk) return "";
    struct stat own {};
    const int64_t own_bytes = ::fstat(fd, &own) == 0 ? own.st_blocks * 512 : 0;
    return fmt::format("; {} are free there", to_text(disk->free + Bytes{own_bytes}));
}

}  // namespace

void make_folder(const std::string& folder) {
    if (const int status = make_folders(folder); status != 0)
        fail(ExitCode::kDisk, "{}: cannot create the folder: {}", folder, errno_text(status));
}

AtomicFile::AtomicFile(std::string path, Bytes need) : path_(std::move(path)), need_(need) {
    TemporaryFile temporary = open_temporary(path_, 0644);
    if (!temporary.fd.valid()) {
        const int status = errno;
        if (const std::string missing = missing_folder_text(path_);
            status == ENOENT && !missing.empty())
            fail(ExitCode::kDisk, "{}: {}", path_, missing);
        give_up("create a file of", status);
    }
    fd_ = std::move(temporary.fd);
    temporary_ = std::move(temporary.path);
    listed_ = add_file_of_process(temporary_);
}

AtomicFile::~AtomicFile() {
    if (!is_renamed_) ::unlink(temporary_.c_str());
    forget_file_of_process(listed_);
}

void AtomicFile::set_mode(mode_t mode) {
    if (::fchmod(fd_.get(), mode) != 0) give_up("set the mode of", errno);
}

void AtomicFile::give_up(const char* doing, int error_number) const {
    fail(ExitCode::kDisk, "{}: cannot {} {}: {}{}", path_, doing, to_text(need_),
         errno_text(error_number), free_space(path_, fd_.get(), error_number));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
    DSL_CHECK(fd_.valid(), "{}: was written to after commit()", path_);
    if (const int status = write_full(fd_.get(), bytes); status != 0) give_up("write", -status);
}

void AtomicFile::write(std::string_view text) {
    write(bytes_in(text));
}

void AtomicFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
    DSL_CHECK(fd_.valid(), "{}: was written to after commit()", path_);
    while (!bytes.empty()) {
        const ssize_t count = ::pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) give_up("write", errno);
        offset += count;
        bytes = bytes.subspan(static_cast<size_t>(count));
    }
}

void AtomicFile::commit() {
    DSL_CHECK(fd_.valid(), "{}: committed twice", path_);
    if (::fsync(fd_.get()) != 0) give_up("flush", errno);
    // Some network file systems report a full disk only here.
    if (::close(fd_.release()) != 0 && errno != EINTR) give_up("flush", errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
        give_up("move into place the new file of", errno);
    is_renamed_ = true;
    forget_file_of_process(std::exchange(listed_, nullptr));
    if (const int status = flush_folder(folder_of(path_)); status != 0)
        give_up("flush the folder of", status);
}

void write_atomically(const std::string& path, std::string_view text) {
    AtomicFile file(path, Bytes{std::ssize(text)});
    file.write(text);
    file.commit();
}

}  // namespace dslaunch::storage
