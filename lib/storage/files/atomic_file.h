// A file written in pieces that appears whole or not at all: a temporary beside it
// (base/new_files.h), fsync, rename, fsync of the folder. Owns the temporary until commit(). A
// replaced file's mode stays. Threads: one owner.
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

class AtomicFile {
  public:
    // NEED is the size that will be written, for the message on a full disk. Throws Error{kDisk}
    // naming PATH if the temporary cannot be made.
    AtomicFile(std::string path, Bytes need);
    // Removes the temporary unless commit() has returned; a signal that ends a command does so too
    // (remove_files_at_signals()).
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // Throws Error{kDisk}: path, bytes needed, cause, and on a full disk the bytes free. May block.
    void write(std::span<const std::byte> bytes);
    void write(std::string_view text);
    // Writes at OFFSET from the start of the file, wherever write() is.
    void write_at(int64_t offset, std::span<const std::byte> bytes);

    // Makes PATH the new content, durably. Throws Error{kDisk}; PATH then holds the old content (or
    // the new one, if only the folder's fsync failed). Once, at the end. Blocks.
    void commit();

    // Sets the permissions that the file will have.
    void set_mode(mode_t mode);

    // Returns the path at which the content lies until commit().
    [[nodiscard]] const std::string& temporary_path() const { return temporary_; }

  private:
    [[noreturn]] void give_up(const char* doing, int error_number) const;

    std::string path_;
    std::string temporary_;
    Bytes need_;
    UniqueFd fd_;
    FileOfProcess* listed_ = nullptr;  // the temporary, until it has another name
    bool renamed_ = false;
};

}  // namespace dslaunch::storage
