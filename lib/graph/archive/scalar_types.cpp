#include "graph/archive/scalar_types.h"

#include <ATen/core/Tensor.h>

#include <map>

#include "base/error.h"

namespace dslaunch::graph {

at::ScalarType scalar_type_of(DType dtype) {
    static const std::map<DType, at::ScalarType> types{{DType::kF32, at::kFloat},
                                                       {DType::kBF16, at::kBFloat16},
                                                       {DType::kF16, at::kHalf},
                                                       {DType::kF64, at::kDouble},
                                                       {DType::kC64, at::kComplexFloat},
                                                       {DType::kBool, at::kBool},
                                                       {DType::kU8, at::kByte},
                                                       {DType::kI8, at::kChar},
                                                       {DType::kI16, at::kShort},
                                                       {DType::kI32, at::kInt},
                                                       {DType::kI64, at::kLong},
                                                       {DType::kU16, at::kUInt16},
                                                       {DType::kU32, at::kUInt32},
                                                       {DType::kU64, at::kUInt64},
                                                       {DType::kF8E4M3, at::kFloat8_e4m3fn}};
    return types.at(dtype);
}

bool is_trained_type(at::ScalarType dtype) {
    return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

DType dtype_of(const std::string& name, const at::Tensor& tensor) {
    for (size_t d = 0; d < detail::kDTypeRows.size(); ++d)
        if (scalar_type_of(static_cast<DType>(d)) == tensor.scalar_type())
            return static_cast<DType>(d);
    fail(ExitCode::kInput,
         "{} has the type {}, which neither safetensors files nor checkpoints can store; {} before "
         "you save the model",
         name, c10::toString(tensor.scalar_type()),
         tensor.scalar_type() == at::kComplexDouble ? "convert it with .to(torch.complex64)"
                                                    : "convert it to another type");
}

}  // namespace dslaunch::graph
