// Memory for tensors in the files of a folder, for a model whose copies do not fit in memory: the
// kernel keeps in memory what fits and reads the rest from the files when it is needed. Used by
// whole_reference.h.
#pragma once

#include <c10/core/Allocator.h>

#include <optional>
#include <string>

#include "base/bytes.h"

namespace dslaunch::job {

// An allocator that places large CPU tensors in nameless files of a folder.
class ScratchMemory final : public c10::Allocator {
  public:
    // Tensors smaller than this stay in memory.
    static constexpr Bytes kLeast{1 << 20};

    // Throws Error{kDisk} if files cannot be created in FOLDER.
    explicit ScratchMemory(std::string folder);

    // Returns the space left on the disk of folder().
    [[nodiscard]] Bytes left() const;
    [[nodiscard]] const std::string& folder() const { return folder_; }

    // Throws Error{kDisk} if the disk is full. Can be called on any thread. The memory is freed
    // with its last tensor, which may outlive this object.
    c10::DataPtr allocate(size_t bytes) override;
    void copy_data(void* to, const void* from, size_t bytes) const override;

    // A scope in which LibTorch allocates the CPU tensors of all threads in this memory.
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
