// A file of rows as `dslaunch data prepare` writes it: tokens and targets of int32. Data path: file
// -> [here] -> data show, eval. Const: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/files/safetensors.h"

namespace dslaunch::worker {

class TokenRows {
  public:
    // Throws Error{kInput} for a file that is none.
    explicit TokenRows(const std::string& path);

    [[nodiscard]] int64_t count() const { return tokens_->shape[0]; }
    [[nodiscard]] int64_t length() const { return tokens_->shape[1]; }
    // REQUIRES: ROW is one of count().
    [[nodiscard]] std::vector<int32_t> tokens(int64_t row) const { return of(*tokens_, row); }
    [[nodiscard]] std::vector<int32_t> targets(int64_t row) const { return of(*targets_, row); }

  private:
    [[nodiscard]] std::vector<int32_t> of(const storage::SafetensorsEntry& column,
                                          int64_t row) const;

    storage::SafetensorsFile file_;
    const storage::SafetensorsEntry* tokens_;
    const storage::SafetensorsEntry* targets_;
};

}  // namespace dslaunch::worker
