// The seam between checkpoints and the file system: few operations, each of which can be recorded,
// failed or cut off by a test. Paths are plain strings, joined with '/'. What fails throws
// Error{kDisk} with path, operation, cause, and on a full disk need and free bytes. Threads: a tree
// by any, a sink or view by one owner at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch::storage {

// A new file, written from its begin to its end.
class FileSink {
  public:
    FileSink() = default;
    FileSink(const FileSink&) = delete;
    FileSink& operator=(const FileSink&) = delete;
    // Bytes that were not synced may be lost.
    virtual ~FileSink() = default;
    // BYTES are taken when it returns. Blocks on the disk when too much is under way.
    virtual void write(std::span<const std::byte> bytes) = 0;
    // All that was written is durable when it returns; nothing may follow.
    virtual void sync() = 0;
};

// A whole file to be read.
class FileView {
  public:
    virtual ~FileView() = default;
    [[nodiscard]] virtual std::span<const std::byte> bytes() const = 0;
    // PART has been read for now: the memory that it takes in this process may go. Read again, it
    // comes from the disk or its cache.
    virtual void let_go(std::span<const std::byte> /*part*/) const {}
};

struct FolderEntry {
    std::string name;
    bool is_folder = false;
    Bytes bytes;
};

// The lock is held by one owner among all processes until it is destroyed or the process ends.
class FileLock {
  public:
    virtual ~FileLock() = default;
};

class FileTree {
  public:
    virtual ~FileTree() = default;
    // Fails where it is already.
    virtual void make_folder(const std::string& path) = 0;
    // Makes the folders of the path that are missing, durably; nothing where it is already.
    void make_folders(const std::string& path);
    // BYTES: the whole file's; room for them is taken at once, so that a full disk shows here.
    // Fails where it is already.
    [[nodiscard]] virtual std::unique_ptr<FileSink> create(const std::string& path,
                                                           Bytes bytes) = 0;
    [[nodiscard]] virtual std::unique_ptr<FileView> open(const std::string& path) const = 0;
    // The folder's entries, sorted by name; nullopt: there is no such folder.
    [[nodiscard]] virtual std::optional<std::vector<FolderEntry>> list(
        const std::string& folder) const = 0;
    // TO is replaced where it is a file.
    virtual void rename(const std::string& from, const std::string& to) = 0;
    // A and B change their names at once; false: this file system cannot, nothing has happened.
    [[nodiscard]] virtual bool exchange(const std::string& a, const std::string& b) = 0;
    // Names in the folder are durable when it returns.
    virtual void sync_folder(const std::string& folder) = 0;
    virtual void remove_file(const std::string& path) = 0;
    // Removes the folder with all it holds; it need not be there.
    virtual void remove_folder(const std::string& path) = 0;
    // Makes the file where it is missing; does not wait. While the lock is held the file holds
    // OWNER. Null: somebody else holds it. Throws Error{kDisk}, also where a lock is refused for
    // another reason, as by a server that does not answer (ENOLCK).
    [[nodiscard]] virtual std::unique_ptr<FileLock> lock(const std::string& path,
                                                         const std::string& owner) = 0;
    // The bytes that are free to this user.
    [[nodiscard]] virtual Bytes free_room(const std::string& folder) const = 0;
};

// The file system of this machine. Files are written in large aligned pieces past the page cache
// where the file system can, so that a save does not push out what training reads.
[[nodiscard]] std::unique_ptr<FileTree> make_disk_tree();

}  // namespace dslaunch::storage
