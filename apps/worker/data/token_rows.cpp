#include "worker/data/token_rows.h"

#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::worker {

TokenRows::TokenRows(const std::string& path)
    : file_(path), tokens_(file_.find("tokens")), targets_(file_.find("targets")) {
    const auto fits = [](const storage::SafetensorsEntry* column) {
        return column != nullptr && column->dtype == DType::kI32 && column->shape.size() == 2 &&
               column->shape[1] > 0;
    };
    if (!fits(tokens_) || !fits(targets_) || tokens_->shape != targets_->shape)
        fail(
            ExitCode::kInput,
            "{}: has no columns `tokens` and `targets` of int32, as `dslaunch data prepare` writes "
            "them",
            printable(path));
}

std::vector<int32_t> TokenRows::of(const storage::SafetensorsEntry& column, int64_t row) const {
    std::vector<int32_t> numbers(static_cast<size_t>(length()));
    std::memcpy(numbers.data(),
                column.bytes.data() + static_cast<size_t>(row) * numbers.size() * sizeof(int32_t),
                numbers.size() * sizeof(int32_t));
    return numbers;
}

}  // namespace dslaunch::worker
