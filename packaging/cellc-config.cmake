# find_package(cellc): what an installation has, for CMake.
#
#   cellc::cellc     the compiler
#   cellc::headers   cell.h and what else generated files include
#   cellc::cell      the runtime as a shared library, for programs that compile generated files themselves
#
#   cellc_add_library(NAME [STATIC] CELLS spec... [OPTIONS option...])
#
# makes the library target NAME of cells, by `cellc build`: specs, names of cells that come with cellc, or either with
# settings (e79:N=32). It is built again when a file among them changes, and has the runtime in it. A STATIC one becomes
# part of the programs; where it has kernels, these are linked with the CUDA toolkit that find_package(CUDAToolkit) finds.
get_filename_component(cellc_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET cellc::cellc)
  add_executable(cellc::cellc IMPORTED)
  set_target_properties(cellc::cellc PROPERTIES IMPORTED_LOCATION "${cellc_prefix}/bin/cellc")

  add_library(cellc::headers INTERFACE IMPORTED)
  set_target_properties(cellc::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${cellc_prefix}/include/cellc")

  add_library(cellc::cell SHARED IMPORTED)
  set_target_properties(cellc::cell PROPERTIES
    IMPORTED_LOCATION "${cellc_prefix}/lib/cellc/libcell.so"
    IMPORTED_SONAME "libcell.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${cellc_prefix}/include/cellc")
endif()

function(cellc_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 given "STATIC" "" "CELLS;OPTIONS")
  if(NOT given_CELLS)
    message(FATAL_ERROR "cellc_add_library(${name}): CELLS names no cell")
  endif()
  set(dir "${CMAKE_CURRENT_BINARY_DIR}/${name}.cells")
  set(kind SHARED)
  set(library "${dir}/lib${name}.so")
  if(given_STATIC)
    set(kind STATIC)
    set(library "${dir}/lib${name}.a")
    list(APPEND given_OPTIONS --static)
  endif()
  get_filename_component(library_name "${library}" NAME)
  set(files "")
  foreach(cell IN LISTS given_CELLS)
    string(REGEX REPLACE ":.*" "" file "${cell}")
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${file}" AND NOT IS_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
      list(APPEND files "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    endif()
  endforeach()
  file(MAKE_DIRECTORY "${dir}")
  add_custom_command(
    OUTPUT "${library}"
    COMMAND cellc::cellc build ${given_CELLS} --name "${name}" -o "${dir}" ${given_OPTIONS}
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    DEPENDS ${files}
    COMMENT "Compiling cells into ${library_name}"
    VERBATIM)
  add_custom_target("${name}_cells" DEPENDS "${library}")
  add_library("${name}" ${kind} IMPORTED GLOBAL)
  set_target_properties("${name}" PROPERTIES
    IMPORTED_LOCATION "${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${dir};${cellc_prefix}/include/cellc")
  if(NOT given_STATIC)
    set_target_properties("${name}" PROPERTIES IMPORTED_NO_SONAME TRUE)
  elseif("--no-cuda" IN_LIST given_OPTIONS)
    set_target_properties("${name}" PROPERTIES INTERFACE_LINK_LIBRARIES "m;dl")
  else()
    find_package(CUDAToolkit QUIET)
    if(CUDAToolkit_FOUND)
      set_target_properties("${name}" PROPERTIES
        INTERFACE_LINK_LIBRARIES "CUDA::cublas;CUDA::cudart;stdc++;m;dl")
    else()
      set_target_properties("${name}" PROPERTIES INTERFACE_LINK_LIBRARIES "m;dl")
    endif()
  endif()
  add_dependencies("${name}" "${name}_cells")
endfunction()
