#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/machine/disk_room.h"
#include "base/path.h"
#include "base/text.h"
#include "storage/checkpoint/disk_sink.h"
#include "storage/checkpoint/file_tree.h"
#include "storage/files/mapped_fault.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {
namespace {

[[noreturn]] void give_up(const std::string& path, const char* doing, Bytes need = {}) {
    const int error_number = errno;
    const Bytes free = disk_space(folder_of(path)).value_or(DiskSpace{}).free;
    fail_file({path, doing, error_number, need, free});
}

class DiskView final : public FileView {
  public:
    explicit DiskView(const std::string& path) : file_(path) {
        set_fault_code(file_.bytes(), ExitCode::kCheckpoint);
    }
    [[nodiscard]] std::span<const std::byte> bytes() const override { return file_.bytes(); }

    void let_go(std::span<const std::byte> part) const override { file_.discard(part); }

  private:
    MappedFile file_;
};

class DiskLock final : public FileLock {
  public:
    explicit DiskLock(UniqueFd fd) : fd_(std::move(fd)) {}

  private:
    UniqueFd fd_;
};

// Returns the entry NAME of FOLDER. If it was removed meanwhile, the entry is an empty file.
FolderEntry entry_of(const std::string& folder, const std::string& name) {
    struct stat about {};
    if (::stat((folder + "/" + name).c_str(), &about) != 0) return {name, false, Bytes{}};
    return {name, S_ISDIR(about.st_mode), Bytes{about.st_size}};
}

class DiskTree final : public FileTree {
  public:
    void make_folder(const std::string& path) override {
        if (::mkdir(path.c_str(), 0777) != 0) give_up(path, "make the folder");
    }

    std::unique_ptr<FileSink> create(const std::string& path, Bytes bytes) override {
        constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
        UniqueFd fd(::open(path.c_str(), kFlags | O_DIRECT, 0666));
        if (!fd.valid() && errno == EINVAL) {
            // Some file systems create the file before they refuse O_DIRECT.
            static_cast<void>(::unlink(path.c_str()));
            fd.reset(::open(path.c_str(), kFlags, 0666));
        }
        if (!fd.valid()) give_up(path, "make the file", bytes);
        return std::make_unique<DiskSink>(path, std::move(fd), bytes);
    }

    std::unique_ptr<FileView> open(const std::string& path) const override {
        try {
            return std::make_unique<DiskView>(path);
        } catch (const Error& error) {
            throw Error(ExitCode::kDisk, error.what());
        }
    }

    std::optional<std::vector<FolderEntry>> list(const std::string& folder) const override {
        std::error_code error;
        std::vector<FolderEntry> entries;
        std::filesystem::directory_iterator next(folder, error);
        for (; !error && next != std::filesystem::directory_iterator(); next.increment(error))
            entries.push_back(entry_of(folder, next->path().filename().string()));
        if (error == std::errc::no_such_file_or_directory) return std::nullopt;
        if (error) {
            errno = error.value();
            give_up(folder, "list the folder");
        }
        std::sort(entries.begin(), entries.end(),
                  [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
        return entries;
    }

    void rename(const std::string& from, const std::string& to) override {
        if (::rename(from.c_str(), to.c_str()) != 0) give_up(to, "move into place");
    }

    bool exchange(const std::string& a, const std::string& b) override {
        if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0)
            return true;
        if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
        give_up(b, "move into place");
    }

    void sync_folder(const std::string& folder) override {
        const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        // EINVAL: the folders of this file system need no fsync.
        if (!fd.valid() || (::fsync(fd.get()) != 0 && errno != EINVAL))
            give_up(folder, "flush the folder");
    }

    void remove_file(const std::string& path) override {
        if (::unlink(path.c_str()) != 0) give_up(path, "remove");
    }

    void remove_folder(const std::string& path) override {
        std::error_code error;
        std::filesystem::remove_all(path, error);
        if (!error) return;
        errno = error.value();
        give_up(path, "remove the folder");
    }

    std::unique_ptr<FileLock> lock(const std::string& path, const std::string& owner) override {
        UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
        if (!fd.valid()) give_up(path, "make the file");
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK) return nullptr;
            if (errno == ENOLCK) {
                fail(ExitCode::kDisk,
                     "{}: cannot lock: {}; the lock service of this network file system does not "
                     "answer: start it, mount with local_lock=flock, or give another --output",
                     printable(path), errno_text(errno));
            }
            if (errno != ENOSYS && errno != EOPNOTSUPP) give_up(path, "lock");
            log_warn("checkpoint",
                     "{}: this file system does not support locks: {}; make sure that no other run "
                     "saves there",
                     path, errno_text(errno));
        }
        // If the disk is full, the owner's name cannot be written, and another run's message lacks
        // this name.
        if (::ftruncate(fd.get(), 0) == 0) static_cast<void>(write_full(fd.get(), owner));
        return std::make_unique<DiskLock>(std::move(fd));
    }

    Bytes free_room(const std::string& folder) const override {
        const std::optional<DiskSpace> disk = disk_space(folder);
        if (!disk) give_up(folder, "read the free space");
        return disk->free;
    }
};

}  // namespace

std::unique_ptr<FileTree> make_disk_tree() {
    return std::make_unique<DiskTree>();
}

}  // namespace dslaunch::storage
