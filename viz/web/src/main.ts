document.documentElement.dataset["page"] = "dpexec";
