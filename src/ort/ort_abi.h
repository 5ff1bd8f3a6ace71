// ONNX Runtime's C ABI, as far as Lockstep calls it. OrtGetApiBase() gives two functions;
// GetApi(17) gives a table of functions that only ever grows at its end, so a slot's number never
// changes. Objects are opaque. A function that returns Status* returns null when it succeeded.
//
// Our own declarations, for no package ships the headers. The slots are the order of the members of
// OrtApi in onnxruntime_c_api.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::ort_abi {

struct Env;
struct Status;
struct SessionOptions;
struct Session;
struct RunOptions;
struct Value;
struct Allocator;
struct TypeInfo;
struct ShapeInfo;  // OrtTensorTypeAndShapeInfo

using AnyFunction = void (*)();

struct Base {  // OrtApiBase
  const AnyFunction* (*get_api)(uint32_t version);
  const char* (*get_version_string)();
};
inline constexpr uint32_t kVersion = 17;

template <size_t slot, typename Signature>
struct Function {};

inline constexpr Function<2, const char*(const Status*)> kGetErrorMessage;
inline constexpr Function<3, Status*(int severity, const char* id, Env**)> kCreateEnv;
inline constexpr Function<7,
                          Status*(const Env*, const char* path, const SessionOptions*, Session**)>
    kCreateSession;
inline constexpr Function<8, Status*(const Env*, const void*, size_t, const SessionOptions*,
                                     Session**)>
    kCreateSessionFromArray;
inline constexpr Function<9, Status*(Session*, const RunOptions*, const char* const* input_names,
                                     const Value* const* inputs, size_t, const char* const* names,
                                     size_t, Value** outputs)>
    kRun;
inline constexpr Function<10, Status*(SessionOptions**)> kCreateSessionOptions;
inline constexpr Function<22, Status*(SessionOptions*, int)> kSetSessionLogSeverityLevel;
inline constexpr Function<23, Status*(SessionOptions*, int)> kSetSessionGraphOptimizationLevel;
inline constexpr Function<24, Status*(SessionOptions*, int)> kSetIntraOpNumThreads;
inline constexpr Function<25, Status*(SessionOptions*, int)> kSetInterOpNumThreads;
inline constexpr Function<30, Status*(const Session*, size_t*)> kSessionGetInputCount;
inline constexpr Function<31, Status*(const Session*, size_t*)> kSessionGetOutputCount;
inline constexpr Function<33, Status*(const Session*, size_t, TypeInfo**)> kSessionGetInputTypeInfo;
inline constexpr Function<34, Status*(const Session*, size_t, TypeInfo**)>
    kSessionGetOutputTypeInfo;
inline constexpr Function<36, Status*(const Session*, size_t, Allocator*, char**)>
    kSessionGetInputName;
inline constexpr Function<37, Status*(const Session*, size_t, Allocator*, char**)>
    kSessionGetOutputName;
inline constexpr Function<39, Status*(RunOptions**)> kCreateRunOptions;
inline constexpr Function<46, Status*(RunOptions*)> kRunOptionsSetTerminate;
inline constexpr Function<48, Status*(Allocator*, const int64_t* shape, size_t, int type, Value**)>
    kCreateTensorAsOrtValue;
inline constexpr Function<50, Status*(const Value*, int*)> kIsTensor;
inline constexpr Function<51, Status*(Value*, void**)> kGetTensorMutableData;
inline constexpr Function<55, Status*(const TypeInfo*, const ShapeInfo**)>
    kCastTypeInfoToTensorInfo;
inline constexpr Function<60, Status*(const ShapeInfo*, int*)> kGetTensorElementType;
inline constexpr Function<61, Status*(const ShapeInfo*, size_t*)> kGetDimensionsCount;
inline constexpr Function<62, Status*(const ShapeInfo*, int64_t*, size_t)> kGetDimensions;
inline constexpr Function<65, Status*(const Value*, ShapeInfo**)> kGetTensorTypeAndShape;
inline constexpr Function<76, Status*(Allocator*, void*)> kAllocatorFree;
inline constexpr Function<78, Status*(Allocator**)> kGetAllocatorWithDefaultOptions;
inline constexpr Function<92, void(Env*)> kReleaseEnv;
inline constexpr Function<93, void(Status*)> kReleaseStatus;
inline constexpr Function<95, void(Session*)> kReleaseSession;
inline constexpr Function<96, void(Value*)> kReleaseValue;
inline constexpr Function<97, void(RunOptions*)> kReleaseRunOptions;
inline constexpr Function<98, void(TypeInfo*)> kReleaseTypeInfo;
inline constexpr Function<99, void(ShapeInfo*)> kReleaseTensorTypeAndShapeInfo;
inline constexpr Function<100, void(SessionOptions*)> kReleaseSessionOptions;
inline constexpr Function<130, Status*(SessionOptions*, const char* key, const char* value)>
    kAddSessionConfigEntry;

}  // namespace lockstep::ort_abi
