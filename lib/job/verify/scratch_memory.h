// Memory for tensors in files of a folder, for a model whose copies do not fit in memory: the
// kernel keeps what fits and reads the rest again. Used by whole_reference.h.
#pragma once

#include <c10/core/Allocator.h>

#include <optional>
#include <string>

#include "base/bytes.h"

namespace dslaunch::job {

class ScratchMemory final : public c10::Allocator {
  public:
    // Tensors below this size stay in memory.
    static constexpr Bytes kLeast{1 << 20};

    // Throws Error{kDisk} if FOLDER cannot hold files.
    explicit ScratchMemory(std::string folder);

    [[nodiscard]] Bytes left() const;  // on the folder's disk
    [[nodiscard]] const std::string& folder() const { return folder_; }

    // Throws Error{kDisk} when the disk is full. Any thread. The memory goes with its last tensor,
    // which may outlive this.
    c10::DataPtr allocate(size_t bytes) override;
    void copy_data(void* to, const void* from, size_t bytes) const override;

    // A scope in which all threads' CPU tensors of LibTorch are made there.
    class Scope {
      public:
        explicit Scope(ScratchMemory& memory);
        ~Scope();
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        c10::Allocator* before_;
    };

  private:
    std::string folder_;
    c10::Allocator* small_;
};

}  // namespace dslaunch::job
