// The seam between checkpoints and the file system: few operations, each of which a test can
// record, fail or cut off. Paths are plain strings, joined with '/'. Failures throw Error{kDisk}
// with path, operation, cause, and on a full disk need and free bytes. Threads: any may use a tree,
// one owner at a time a sink or view.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch::storage {

// A new file, written from its start to its end.
class FileSink {
  public:
    FileSink() = default;
    FileSink(const FileSink&) = delete;
    FileSink& operator=(const FileSink&) = delete;
    // Bytes that were not synced may be lost.
    virtual ~FileSink() = default;
    // Takes BYTES before it returns. Blocks on the disk while too much waits to be written.
    virtual void write(std::span<const std::byte> bytes) = 0;
    // Makes everything that was written durable before it returns; nothing may follow.
    virtual void sync() = 0;
};

// A whole file to be read.
class FileView {
  public:
    virtual ~FileView() = default;
    [[nodiscard]] virtual std::span<const std::byte> bytes() const = 0;
    // Says that PART was read for now: its memory in this process may be freed. If it is read
    // again, it comes from the disk or its cache.
    virtual void let_go(std::span<const std::byte> /*part*/) const {}
};

struct FolderEntry {
    std::string name;
    bool is_folder = false;
    Bytes bytes;
};

// A lock that one owner among all processes holds until it is destroyed or the process ends.
class FileLock {
  public:
    virtual ~FileLock() = default;
};

class FileTree {
  public:
    virtual ~FileTree() = default;
    // Fails if the folder exists.
    virtual void make_folder(const std::string& path) = 0;
    // Makes the missing folders of the path, durably; does nothing if it exists.
    void make_folders(const std::string& path);
    // BYTES is the whole file's size; room for it is taken at once, so that a full disk shows here.
    // Fails if the file exists.
    [[nodiscard]] virtual std::unique_ptr<FileSink> create(const std::string& path,
                                                           Bytes bytes) = 0;
    [[nodiscard]] virtual std::unique_ptr<FileView> open(const std::string& path) const = 0;
    // Returns the folder's entries, sorted by name; nullopt: there is no such folder.
    [[nodiscard]] virtual std::optional<std::vector<FolderEntry>> list(
        const std::string& folder) const = 0;
    // Replaces TO if it is a file.
    virtual void rename(const std::string& from, const std::string& to) = 0;
    // Exchanges the names of A and B at once; false: this file system cannot, and nothing changed.
    [[nodiscard]] virtual bool exchange(const std::string& a, const std::string& b) = 0;
    // Makes the names in the folder durable before it returns.
    virtual void sync_folder(const std::string& folder) = 0;
    virtual void remove_file(const std::string& path) = 0;
    // Removes the folder and everything in it; it may be missing.
    virtual void remove_folder(const std::string& path) = 0;
    // Makes the file if it is missing; does not wait. The file holds OWNER while the lock is held.
    // Null: somebody else holds it. Throws Error{kDisk}, also if a lock is refused for another
    // reason, such as a server that does not answer (ENOLCK).
    [[nodiscard]] virtual std::unique_ptr<FileLock> lock(const std::string& path,
                                                         const std::string& owner) = 0;
    // Returns the bytes that are free to this user.
    [[nodiscard]] virtual Bytes free_room(const std::string& folder) const = 0;
};

// Returns the file system of this machine. Files are written in large aligned pieces past the page
// cache if the file system can, so that a save does not push out what training reads.
[[nodiscard]] std::unique_ptr<FileTree> make_disk_tree();

}  // namespace dslaunch::storage
