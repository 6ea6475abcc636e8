// A file that is written in pieces and appears completely or not at all: a temporary file beside it
// (base/new_files.h), fsync, rename, fsync of the folder. Owns the temporary file until commit().
// A replaced file's mode is kept. Threads: one owner.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/machine/files_of_process.h"

namespace dslaunch::storage {

// Makes FOLDER and the missing folders above it. Throws Error{kDisk} naming it.
void make_folder(const std::string& folder);

// A new file until its commit().
class AtomicFile {
  public:
    // NEED is the size that will be written, for the message on a full disk. Throws Error{kDisk}
    // naming PATH if the temporary file cannot be made.
    AtomicFile(std::string path, Bytes need);
    // Removes the temporary file unless commit() has returned. A signal that ends a command also
    // removes it (remove_files_at_signals()).
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // Writes the next bytes. Throws Error{kDisk} with path, bytes needed and cause, and on a full
    // disk also the bytes free. May block.
    void write(std::span<const std::byte> bytes);
    void write(std::string_view text);
    // Writes at OFFSET from the start of the file. Does not change where write() continues.
    void write_at(int64_t offset, std::span<const std::byte> bytes);

    // Replaces the content of PATH by the new one, durably. Throws Error{kDisk}; PATH then still
    // has the old content (or the new one, if only the folder's fsync failed). Must be called once,
    // at the end. Blocks.
    void commit();

    // Sets the permissions of the finished file.
    void set_mode(mode_t mode);

    // Returns the path of the temporary file, which has the content until commit().
    [[nodiscard]] const std::string& temporary_path() const { return temporary_; }

  private:
    [[noreturn]] void give_up(const char* doing, int error_number) const;

    std::string path_;
    std::string temporary_;
    Bytes need_;
    UniqueFd fd_;
    FileOfProcess* listed_ = nullptr;  // the temporary file, until it is renamed
    bool is_renamed_ = false;
};

// Makes TEXT the content of PATH through an AtomicFile, and throws what it throws. Unlike
// write_file_atomically(), it leaves no temporary file if a signal ends a command. Blocks.
void write_atomically(const std::string& path, std::string_view text);

}  // namespace dslaunch::storage
