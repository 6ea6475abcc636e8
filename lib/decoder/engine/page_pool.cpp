#include "decoder/engine/page_pool.h"

#include "base/check.h"
#include "decoder/decode/batch.h"

namespace dslaunch::decoder {

PagePool::PagePool(int32_t pages) : pages_(pages) {
    free_.reserve(static_cast<size_t>(pages));
    for (int32_t page = pages; page > 0; --page) free_.push_back(page - 1);
}

bool PagePool::grow(std::vector<int32_t>& list, int64_t positions) {
    const int64_t missing = pages_for(positions) - std::ssize(list);
    if (missing > pages_free()) return false;
    for (int64_t i = 0; i < missing; ++i) {
        list.push_back(free_.back());
        free_.pop_back();
    }
    return true;
}

void PagePool::give_back(std::vector<int32_t>& list) {
    free_.insert(free_.end(), list.rbegin(), list.rend());
    list.clear();
    DSL_CHECK(pages_free() <= pages_, "a page was given back twice");
}

}  // namespace dslaunch::decoder
