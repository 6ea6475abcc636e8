#include "storage/pickle/pickle_value.h"

namespace dslaunch::storage {

const PickleValue* PickleValue::find(std::string_view key) const {
    if (kind != Kind::kDict) return nullptr;
    for (size_t i = items.size(); i >= 2; i -= 2)
        if (items[i - 2]->kind == Kind::kText && items[i - 2]->text == key) return items[i - 1];
    return nullptr;
}

}  // namespace dslaunch::storage
