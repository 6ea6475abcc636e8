// The run config's adapters.
#include "config/resolve/resolver.h"

namespace dslaunch::config {

void Resolver::lora() {
    const std::string section = "dslaunch.lora";
    if (given(section) == nullptr) return;
    LoraConfig& lora = run_config().lora;
    lora.r = take_integer(section + ".r");
    const std::string alpha = section + ".alpha";
    if (given(alpha) != nullptr) {
        lora.alpha = take_number(alpha);
    } else {
        lora.alpha = static_cast<double>(lora.r);
        derive(alpha, make_value(lora.alpha), "dslaunch.lora.r when not given");
    }
    lora.dropout = take_number(section + ".dropout");
    if (lora.dropout >= 1) problem(section + ".dropout", "must be below 1");
    lora.rslora = take_bool(section + ".rslora");
    lora.targets = take_texts(section + ".targets");
    lora.modules_to_save = take_texts(section + ".modules_to_save");
    lora.init = take_text(section + ".init");
    const std::string base = take_text(section + ".base");
    lora.base = base == "int8"   ? LoraBase::kInt8
                : base == "int4" ? LoraBase::kInt4
                : base == "nf4"  ? LoraBase::kNf4
                                 : LoraBase::kAsIs;
}

}  // namespace dslaunch::config
