/* What the parts of the library share has names here that no program's own functions have; every file is compiled
   with this. */
#ifndef CKPTD_NAMES_H
#define CKPTD_NAMES_H

#define ask_farm ckptd_ask_farm
#define begin_call ckptd_begin_call
#define begun ckptd_begun
#define cancel_session ckptd_cancel_session
#define checksum ckptd_checksum
#define client ckptd_client
#define close_farm ckptd_close_farm
#define collect ckptd_collect
#define complete ckptd_complete
#define count_of ckptd_count_of
#define describe ckptd_describe
#define describe_arguments ckptd_describe_arguments
#define end_session ckptd_end_session
#define enter ckptd_enter
#define fail ckptd_fail
#define find_session ckptd_find_session
#define finish_one ckptd_finish_one
#define forget_error ckptd_forget_error
#define forget_old_sessions ckptd_forget_old_sessions
#define free_config ckptd_free_config
#define free_session ckptd_free_session
#define free_sessions ckptd_free_sessions
#define function_of ckptd_function_of
#define is_inside ckptd_is_inside
#define is_scalar ckptd_is_scalar
#define json_first ckptd_json_first
#define json_is ckptd_json_is
#define json_member ckptd_json_member
#define json_next ckptd_json_next
#define json_number ckptd_json_number
#define json_string ckptd_json_string
#define last_said ckptd_last_said
#define later ckptd_later
#define leave ckptd_leave
#define message_of ckptd_message_of
#define open_farm ckptd_open_farm
#define read_config ckptd_read_config
#define read_whole ckptd_read_whole
#define release ckptd_release
#define remove_folder ckptd_remove_folder
#define run_ckptd ckptd_run_ckptd
#define size_of ckptd_size_of
#define start_thread ckptd_start_thread
#define start_watching ckptd_start_watching
#define stop_thread ckptd_stop_thread
#define stop_watching ckptd_stop_watching
#define take_arguments ckptd_take_arguments
#define take_end ckptd_take_end
#define take_results ckptd_take_results
#define text_of ckptd_text_of
#define values_of_list ckptd_values_of_list
#define values_of_pointers ckptd_values_of_pointers
#define values_of_stack ckptd_values_of_stack
#define write_all ckptd_write_all
#define write_whole ckptd_write_whole

#endif
