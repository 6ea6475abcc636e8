// The interface between checkpoints and the file system: few operations, so that a test can record
// each of them, make it fail, or stop after it. Paths are plain strings, joined with '/'. Every
// failure throws Error{kDisk}. The message has path, operation and cause, and for a full disk also
// the bytes that are needed and free. Any thread may use a tree; a sink or a view has one owner at
// a time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace dslaunch::storage {

// A new file, written from its start to its end.
class FileSink {
  public:
    FileSink() = default;
    FileSink(const FileSink&) = delete;
    FileSink& operator=(const FileSink&) = delete;
    // Destroying the sink may lose bytes that were not synced.
    virtual ~FileSink() = default;
    // Writes or copies BYTES before it returns. Blocks on the disk while too many bytes wait to be
    // written.
    virtual void write(std::span<const std::byte> bytes) = 0;
    // Makes all written bytes durable before it returns. No other call may follow.
    virtual void sync() = 0;
};

// A whole file to be read.
class FileView {
  public:
    virtual ~FileView() = default;
    // Returns the content, which is valid as long as the view lives.
    [[nodiscard]] virtual std::span<const std::byte> bytes() const = 0;
    // Says that PART is not needed for now: its memory in this process may be freed. A later read
    // gets it from the disk or the page cache.
    virtual void let_go(std::span<const std::byte> /*part*/) const {}
};

// A file or folder in a folder.
struct FolderEntry {
    std::string name;
    bool is_folder = false;
    Bytes bytes;  // size of a file
};

// A lock that only one process at a time can hold, until it is destroyed or the process ends.
class FileLock {
  public:
    virtual ~FileLock() = default;
};

// A file system.
class FileTree {
  public:
    virtual ~FileTree() = default;
    // Makes the folder; fails if it exists.
    virtual void make_folder(const std::string& path) = 0;
    // Makes the missing folders of PATH durably; does nothing if PATH exists.
    void make_folders(const std::string& path);
    // Creates a file whose whole size will be BYTES. Reserves the room at once, so that a full disk
    // is noticed here. Fails if the file exists.
    [[nodiscard]] virtual std::unique_ptr<FileSink> create(const std::string& path,
                                                           Bytes bytes) = 0;
    // Opens the whole of an existing file for reading.
    [[nodiscard]] virtual std::unique_ptr<FileView> open(const std::string& path) const = 0;
    // Returns the folder's entries, sorted by name; nullopt if there is no such folder.
    [[nodiscard]] virtual std::optional<std::vector<FolderEntry>> list(
        const std::string& folder) const = 0;
    // Renames FROM to TO. Replaces TO if it is a file.
    virtual void rename(const std::string& from, const std::string& to) = 0;
    // Exchanges the names of A and B atomically. Returns false, and changes nothing, if this file
    // system cannot do that.
    [[nodiscard]] virtual bool exchange(const std::string& a, const std::string& b) = 0;
    // Makes the names in the folder durable before it returns.
    virtual void sync_folder(const std::string& folder) = 0;
    // Removes the file; fails if it is missing.
    virtual void remove_file(const std::string& path) = 0;
    // Removes the folder, which may be missing, and everything in it.
    virtual void remove_folder(const std::string& path) = 0;
    // Locks the file, and creates it if it is missing. Does not wait. The file contains OWNER while
    // the lock is held. Returns null if another owner holds the lock. Throws Error{kDisk} if
    // locking is impossible, for example because a server does not answer (ENOLCK).
    [[nodiscard]] virtual std::unique_ptr<FileLock> lock(const std::string& path,
                                                         const std::string& owner) = 0;
    // Returns the number of bytes that this user can still write.
    [[nodiscard]] virtual Bytes free_room(const std::string& folder) const = 0;
};

// Returns the file system of this machine. Files are written in large aligned pieces and bypass the
// page cache if the file system allows that, so that a save does not evict the data that training
// reads.
[[nodiscard]] std::unique_ptr<FileTree> make_disk_tree();

// A failed operation on a file, for the message of an error.
struct FileFailure {
    std::string path;
    std::string_view doing;  // "write", "make the folder"
    int error_number = 0;
    Bytes need;  // size of the whole file; if 0, the message does not mention it
    Bytes free;  // free bytes on PATH's disk; the message mentions them if the disk is full
};

// Throws Error{kDisk}. The message has path, operation, cause and remedy, and for a full disk also
// the bytes that are needed and free.
[[noreturn]] void fail_file(const FileFailure& failure);

}  // namespace dslaunch::storage
