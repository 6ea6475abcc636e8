#include "storage/tokens/row_documents.h"

#include <set>

namespace dslaunch::storage {

RowDocuments documents_of_row(std::span<const int64_t> numbers) {
    RowDocuments found;
    std::set<int64_t> seen;
    for (int64_t i = 0; i < std::ssize(numbers) && found.bad < 0; ++i) {
        if (i > 0 && numbers[i] == numbers[i - 1]) {
            ++found.places.back().numel;
        } else if (numbers[i] < 0 || !seen.insert(numbers[i]).second) {
            found.bad = i;
        } else {
            found.places.push_back({i, 1});
        }
    }
    return found;
}

}  // namespace dslaunch::storage
